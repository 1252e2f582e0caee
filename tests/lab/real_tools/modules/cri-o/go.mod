module tools.invalid/cri-o

go 1.26.6

require github.com/cri-o/cri-o v1.34.0
