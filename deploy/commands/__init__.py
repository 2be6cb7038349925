"""One file a `reveal` command: `configure(parser)` declares arguments, `run(args) -> int` does the work. Listed in
deploy.cli.COMMANDS.
"""
