-- Every sample of a metric around an episode
-- episode =
-- metric = cpu.busy_pct
SELECT ts, instance, value
FROM episode_samples
WHERE startsWith(episode, {episode:String}) AND metric = {metric:String}
ORDER BY ts, instance
LIMIT {limit:UInt32}
