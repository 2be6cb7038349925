-- The inventory: hosts with their hardware in numbers, agent and last sign of life
SELECT host, last_seen, agent, period_ms,
       layout['core'] AS cores, layout['node'] AS nodes, layout['gpu'] AS gpus,
       layout['interface'] AS interfaces, layout['disk'] AS disks, dropped
FROM hosts
WHERE {host:String} = '' OR host = {host:String}
ORDER BY host
LIMIT {limit:UInt32}
