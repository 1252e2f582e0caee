module tools.invalid/mig-parted

go 1.26.0

require github.com/NVIDIA/mig-parted v0.14.4
