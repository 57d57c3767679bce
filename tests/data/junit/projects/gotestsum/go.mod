module example.com/quirks

go 1.19
