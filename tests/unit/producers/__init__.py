"""Tests of the agent: parsers on odd texts, rates, the frame, the loop, replay."""
