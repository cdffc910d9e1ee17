"""One file for each platform: it knows its SDK and nothing of sessions."""
