/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The shell of a kernel module, of NVIDIA's driver or of those by which NVLink 5 switches are managed: the .modinfo section that modinfo reads and the symbols from which
 * depmod computes who depends on whom. A kernel has nothing to run in it.
 */
#define MODINFO(tag, text) \
    static const char modinfo_##tag[] __attribute__((section(".modinfo"), used, aligned(1))) = #tag "=" text

/* depmod reads exported names from __ksymtab_strings and wanted ones from the undefined symbols. */
#define EXPORT(symbol) \
    static const char ksymtab_##symbol[] __attribute__((section("__ksymtab_strings"), used, aligned(1))) = #symbol; \
    int symbol(void) { return 0; }
#define WANT(symbol) \
    extern int symbol(void); \
    int want_##symbol(void) { return symbol(); }

#ifdef VERSION /* those of the kernel have none */
MODINFO(version, VERSION);
#endif
MODINFO(license, LICENSE);
MODINFO(name, NAME);
MODINFO(srcversion, "0123456789ABCDEF0123456");
MODINFO(vermagic, UTS_RELEASE " SMP preempt mod_unload modversions ");

#if defined(MODULE_nvidia)
/* Display controllers and 3D controllers of NVIDIA: udev loads the driver for them. */
static const char alias_vga[] __attribute__((section(".modinfo"), used, aligned(1))) = "alias=pci:v000010DEd*sv*sd*bc03sc00i00*";
static const char alias_3d[] __attribute__((section(".modinfo"), used, aligned(1))) = "alias=pci:v000010DEd*sv*sd*bc03sc02i00*";
MODINFO(depends, "");
EXPORT(nvidia_get_rm_ops)
#elif defined(MODULE_nvidia_modeset)
MODINFO(depends, "nvidia");
WANT(nvidia_get_rm_ops)
EXPORT(nvKmsKapiGetFunctionsTable)
#elif defined(MODULE_nvidia_drm)
MODINFO(depends, "nvidia-modeset");
WANT(nvKmsKapiGetFunctionsTable)
#elif defined(MODULE_mlx5_core)
MODINFO(depends, "");
EXPORT(mlx5_cmd_exec)
#elif defined(MODULE_mlx5_ib)
MODINFO(depends, "mlx5_core");
WANT(mlx5_cmd_exec)
#elif defined(MODULE_ib_umad)
MODINFO(depends, "");
#else
MODINFO(depends, "nvidia");
WANT(nvidia_get_rm_ops)
#endif
