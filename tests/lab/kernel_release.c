/* What a program in a lab host takes for the running kernel: GPUFLEET_RELEASE in place of that of the machine, whose kernel
 * no distribution has headers for. Preloaded into every program of the host, so that apt, DKMS and the module agree. */
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int uname(struct utsname *names)
{
    long status = syscall(SYS_uname, names);

    if (status == 0) {
        memset(names->release, 0, sizeof names->release);
        strncpy(names->release, GPUFLEET_RELEASE, sizeof names->release - 1);
    }
    return (int)status;
}
