module tools.invalid/kueue

go 1.26

require sigs.k8s.io/kueue v0.14.0
