-- What was learnt of hosts: versions, when, and how many features are looked at
SELECT host, version, learnt_from, learnt_to, learnt_windows, features, kept,
       round(100 * kept / features, 1) AS kept_pct, kept_by, formatReadableSize(bytes) AS size
FROM models
WHERE ({host:String} = '' OR host = {host:String})
ORDER BY host, version DESC
LIMIT {limit:UInt32}
