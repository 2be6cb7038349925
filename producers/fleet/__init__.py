"""A simulated fleet: telemetry of hosts that do not exist, with faults whose truth is known.

Belongs here: hardware profiles, jobs and faults as data (`*.toml`), and the pure generator that makes telemetry, events
and ground truth of them: the same arguments give the same values. May not: Kafka, files, clocks, detection.

    profiles  what hardware a host has, and so which channels its agent publishes
    jobs      what it is asked to do, second by second: jobs, their phases and steps
    knobs     what can be wrong, as numbers with a neutral value; faults turn them
    faults    kinds of faults: which knobs they turn, when after their onset, and what that shows in
    schedule  which fault strikes which host when, asked for or at random
    activity  latent flows of a second (compute, communication, input, checkpoint) that all metrics follow
    cpu, memory, gpu, network, storage  metrics of a subsystem from the flows and knobs
    noise     how much each metric scatters, measured on a recording
    sheet     values of a subsystem of some hosts, on which noise and counting are laid
    simulation  the fleet: puts them together

To add a profile, a job or a fault, write its section in the TOML file. To add a metric, set it in the function of its
subsystem; `channels.toml` says which hardware it needs.
"""
