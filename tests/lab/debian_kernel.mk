# What stands in for a kernel's build system: it takes an external module's source and writes the module files that the
# source names, with their modinfo and without their code. Minutes of compiling become a second; dkms notices nothing.
EXTERNAL := $(or $(KBUILD_EXTMOD),$(M),$(SUBDIRS))
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="*\([0-9.]*\)"*$$/\1/p' $(EXTERNAL)/dkms.conf)
MODULES := nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem
LICENSE := $(if $(wildcard $(EXTERNAL)/src/nvidia),Dual MIT/GPL,NVIDIA)

modules: $(MODULES:%=$(EXTERNAL)/%.ko)

$(EXTERNAL)/%.ko:
	printf '%s\n' '__attribute__((section(".modinfo"), used)) static const char v[] = "version=$(VERSION)";' \
	  '__attribute__((section(".modinfo"), used)) static const char l[] = "license=$(LICENSE)";' | gcc -x c -c -o $@ -

.PHONY: modules
