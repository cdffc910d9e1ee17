"""Finding: the query language, ranking, snippets and the tool that recalls conversations. It stands on the store."""
