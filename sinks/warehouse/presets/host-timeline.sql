-- What happened on a host, in order
-- Anomalous windows are left out: an episode is what they add up to.
SELECT ts, host, event, subsystem, round(severity, 1) AS severity, detail
FROM host_timeline
WHERE ts >= {since:DateTime64(3, 'UTC')} AND ts < {until:DateTime64(3, 'UTC')}
  AND ({host:String} = '' OR host = {host:String})
  AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
  AND event != 'anomalous window'
ORDER BY ts, host, event
LIMIT {limit:UInt32}
