def test_pass():
    pass
