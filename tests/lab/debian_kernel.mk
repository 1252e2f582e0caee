# What stands in for a kernel's build system: it takes an external module's source and writes the module files that the
# source names, with their modinfo and without their code. Minutes of compiling become a second; dkms notices nothing.
# With LOADABLE set above, a lab host loads them into its virtual hardware; without, it refuses them as a kernel does.
EXTERNAL := $(or $(KBUILD_EXTMOD),$(M),$(SUBDIRS))
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="*\([0-9.]*\)"*$$/\1/p' $(EXTERNAL)/dkms.conf)
MODULES := nvidia nvidia-modeset nvidia-drm nvidia-uvm nvidia-peermem
FIELD := __attribute__((section(".modinfo"), used)) static const char
LICENSE := $(if $(wildcard $(EXTERNAL)/src/nvidia),Dual MIT/GPL,NVIDIA)

modules: $(MODULES:%=$(EXTERNAL)/%.ko)

$(EXTERNAL)/%.ko:
	printf '%s\n' '$(FIELD) v[] = "version=$(VERSION)";' '$(FIELD) l[] = "license=$(LICENSE)";' \
	  $(if $(LOADABLE),'$(FIELD) n[] = "name=$(*F)";' '$(FIELD) m[] = "vermagic=$(shell uname -r) SMP";') | gcc -x c -c -o $@ -

.PHONY: modules
