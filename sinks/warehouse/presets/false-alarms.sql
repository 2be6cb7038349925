-- The share of false alarms, by what people said of them
-- The last word on an episode counts.
SELECT subsystem,
       ifNull(cause, 'unknown') AS probable_cause,
       count() AS judged,
       countIf(said = 'true') AS true_alarms,
       countIf(said = 'expected') AS expected,
       countIf(said = 'false') AS false_alarms,
       round(100 * false_alarms / judged, 1) AS false_pct
FROM
(
    SELECT alert, episode, host, subsystem, cause, argMax(verdict, time) AS said
    FROM feedback
    WHERE time >= {since:DateTime64(3, 'UTC')} AND time < {until:DateTime64(3, 'UTC')}
      AND ({host:String} = '' OR host = {host:String})
      AND ({subsystem:String} = '' OR subsystem = {subsystem:String})
    GROUP BY alert, episode, host, subsystem, cause
)
GROUP BY subsystem, cause
ORDER BY false_alarms DESC, judged DESC, subsystem, probable_cause
LIMIT {limit:UInt32}
