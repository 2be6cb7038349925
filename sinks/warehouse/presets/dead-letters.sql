-- Messages that could not be used, by reason
SELECT topic, service, reason, count() AS messages, max(received) AS last_received, any(detail) AS example
FROM dead_letters
WHERE received >= {since:DateTime64(3, 'UTC')} AND received < {until:DateTime64(3, 'UTC')}
GROUP BY topic, service, reason
ORDER BY messages DESC, topic, service, reason
LIMIT {limit:UInt32}
