"""The root-cause report of an episode: what is in ClickHouse about it, as terminal text, Markdown or an HTML page.

`content` holds the values of a report. `choice` finds the episode that is meant, `queries` reads its report
(`read_report`), with `plots` for what is drawn, all with the SQL of `statements`; `gaps` says what was not seen.
`words` puts numbers and times in words, `visible` takes the teeth out of foreign text, and `render` makes one of its
FORMATS of a report: `text`, `markdown` or `page`, which draw with `spark`, `chart` and `markup`.

Belongs here: what a reader of one episode needs to know. May not: writing anything, judging anything anew, a clock.
Numbers come from the database as they were stored; what it lacks is left out or said to be unknown.

To add a fact: a field in `content`, a statement and what becomes of it in `queries`, a place in each of the three
formats. To add a format: one file with one function of a report, and a line in FORMATS of `render`.
"""
