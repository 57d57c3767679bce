"""The live web for search agents: engines and pages, kept in a cache from which everything replays."""
