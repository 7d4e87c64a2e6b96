module podcount

go 1.25
