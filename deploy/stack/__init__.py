"""The one-machine stack: every service as a child process under one supervisor.

Belongs here: the table of services, how they are started, watched, restarted and stopped, and what is known of them
from outside (`stack.json`). May not: what a service does. A service is any program that runs in the foreground and
ends on SIGTERM.
To add one: a row in `services.py`; if it can tell when it is ready, let it beat a `deploy.ready.ReadyFile`.
"""
