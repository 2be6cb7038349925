-- Hosts that are known and say nothing
-- seconds = 60
SELECT host, last_seen,
       dateDiff('second', last_seen, {until:DateTime64(3, 'UTC')}) AS silent_s,
       agent, dropped,
       mapKeys(sequences) AS subsystems
FROM hosts
WHERE last_seen >= {since:DateTime64(3, 'UTC')}
  AND last_seen < {until:DateTime64(3, 'UTC')} - toIntervalSecond({seconds:UInt32})
  AND ({host:String} = '' OR host = {host:String})
ORDER BY last_seen, host
LIMIT {limit:UInt32}
