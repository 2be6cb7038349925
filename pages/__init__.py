"""What a service serves over HTTP: a few pages for probes, scrapers and people with a link, and how they are served.

`site` is the pages by their paths, without HTTP; `server` serves a site; `exposition` makes Prometheus' text.

Belongs here: what is the same for the pages of every service. May not: what one service says of itself, an import of
any other folder of ours.

To serve something: a `Site` of the service's pages, and a `Server` of it where the service is put together.
"""
