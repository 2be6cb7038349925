"""The alert fan-out: episodes in, alerts with a life-cycle out, to people and machines.

How nothing is lost, and no pager goes off twice for one thing
--------------------------------------------------------------
One instance works, the others stand by: all join one consumer group on the one partition of `reveal.alert-state`, and
whoever is given it owns the alerts. The owner reads that compacted topic from its beginning, which is all that is known
of alerts, silences and acknowledgements, and then what is added: commands of people. Episodes it reads from the offset
that the state names.

Each turn is one Kafka transaction: changed alerts, states for `reveal.alerts`, tries for `reveal.deliveries` and the
offset up to which episodes are digested. Killed at any moment, the next owner finds a turn whole or not at all, and the
broker refuses whatever a former owner still wants to write.

What a receiver is told is not a queue of messages but a difference: each alert holds the revision that each receiver
knows, and whatever it does not know is told. So a crash between a message and the note that it was delivered tells the
same again, with the same deduplication key, and nothing else; a receiver that was away for an hour is told how things
are now, not what happened in between; and an alert that came and went meanwhile is not told at all.

What is where: `engine` applies facts and time to the alerts, which `ledger` holds with what of them is to be stored;
`groups` are those of many hosts, and `telling` says who is to hear what now. All are pure, with `lifecycle`,
`grouping`, `breaker`, `silences`, `limits` and `backoff` as their policies, `routing` (read by `routing_file`) saying
who is told what, and `text` how. `channels/` has a file a kind of receiver, `workers` a thread a receiver, `kafka`
alone knows Kafka, `service` is the loop, `endpoint` the pages for probes and feedback links.

To add a channel: a file in `channels/` with its options and its class, a line in the table `CHANNELS`, a line in the
contract suite.
"""
