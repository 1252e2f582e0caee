/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * IMEX: refuses a driver of another version, and nodes among which no address is the host's own, as NVIDIA's does (IMEX guide, "Other NVIDIA software
 * packages", BIND_INTERFACE_IP). It reads its nodes when it starts only; what it has read is in /run/nvidia-imex/nodes.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdbool.h>

#include "daemon.h"
#include "driver_version.h"

static const char pid_file[] = "/run/nvidia-imex/nvidia-imex.pid";

static bool is_own(const char *node, const struct ifaddrs *interfaces)
{
    for (const struct ifaddrs *one = interfaces; one; one = one->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (!one->ifa_addr)
            continue;
        if (one->ifa_addr->sa_family == AF_INET)
            inet_ntop(AF_INET, &((const struct sockaddr_in *)one->ifa_addr)->sin_addr, text, sizeof text);
        else if (one->ifa_addr->sa_family == AF_INET6)
            inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)one->ifa_addr)->sin6_addr, text, sizeof text);
        if (text[0] && strcmp(text, node) == 0)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    char running[64], line[64];
    bool own = false;
    struct ifaddrs *interfaces = NULL;
    (void)argc, (void)argv;
    int ready = daemon_begin();
    driver_version(running, sizeof running);
    if (strcmp(running, VERSION)) {
        fprintf(stderr, "IMEX version %s is not compatible with the driver %s\n", VERSION, running[0] ? running : "that is not loaded");
        return 1;
    }
    FILE *nodes = fopen("/etc/nvidia-imex/nodes_config.cfg", "r"), *read = fopen("/run/nvidia-imex/nodes", "w");
    if (!nodes || !read || getifaddrs(&interfaces)) {
        fprintf(stderr, "no node configuration\n");
        return 1;
    }
    while (fgets(line, sizeof line, nodes)) {
        fputs(line, read);
        line[strcspn(line, "\n")] = 0;
        own = own || is_own(line, interfaces);
    }
    fclose(nodes);
    fclose(read);
    if (!own) {
        fprintf(stderr, "no node has an address of this host\n");
        return 1;
    }
    daemon_ready(ready, pid_file);
    wait_for_end();
    unlink(pid_file);
    return 0;
}
