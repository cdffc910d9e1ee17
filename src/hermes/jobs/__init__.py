"""Work of the agent without a person: scheduled jobs (`cron/`).

Owns the definition of a job, and the run of a job as a conversation. Imports the conversation runtime and everything
below it. Imports no surface: neither gateway, chat, server, browser nor cli. They hand in what a job needs of them,
such as the delivery to a platform.
"""
