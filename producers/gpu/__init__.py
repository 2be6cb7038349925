"""GPUs, read through NVIDIA's library in a process of its own: a driver call may hang for minutes, or crash.

Belongs here: the child process (`python -m producers.gpu`: child, device, part, batches, nvml, which alone imports the
binding), what it is told and what it says (wire), which values are plausible (fields), and its parent's side (process,
bus, names, patience, roster, spawn). The child imports neither numpy nor a Kafka client, so that it stays small. The
text of nvidia-smi, whose names and layout change with every driver, is read nowhere. May not: what metrics mean to a
detector, the kernel's log.

To add a metric: a row in CALLS of `nvml` or in FIELDS or GPM_METRICS of `fields`, and its range in RANGES.
"""
