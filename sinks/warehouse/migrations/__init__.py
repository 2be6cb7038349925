"""The DDL, numbered. To change a table: a new file NNNN_name.sql here; one that was published is never edited.

A file has a part `-- up` and a part `-- down`; each statement ends with a semicolon at the end of its line, and can be
run twice (IF [NOT] EXISTS), because a crash may come between any two. Placeholders: ${database}; ${on_cluster}, empty
or ON CLUSTER 'name'; ${replicated}, empty or Replicated. No grants, no Kafka engine: the embedded engine has neither.
"""
