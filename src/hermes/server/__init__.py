"""The agent behind HTTP, for programs that speak OpenAI's interface; how it is used is in api-server.md."""
