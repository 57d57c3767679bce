"""Who answers: model servers and offline policies behind one protocol."""
