/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the stand-in daemons share: go to the background only when ready, as Type=forking expects.
 */
#ifndef LAB_DAEMON_H
#define LAB_DAEMON_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Forks; the parent waits for daemon_ready() or the child's end and leaves with its status. */
static int daemon_begin(void)
{
    int ready[2];
    if (pipe(ready))
        exit(1);
    pid_t child = fork();
    if (child < 0)
        exit(1);
    if (child > 0) {
        char answer = 1;
        int status = 0;
        close(ready[1]);
        if (read(ready[0], &answer, 1) == 1)
            exit(answer);
        waitpid(child, &status, 0);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    close(ready[0]);
    setsid();
    return ready[1];
}

static void daemon_ready(int ready, const char *pid_file)
{
    FILE *file = fopen(pid_file, "w");
    if (file) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    if (write(ready, "\0", 1) != 1)
        exit(1);
    close(ready);
}

static void wait_for_end(void)
{
    sigset_t signals;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    sigwait(&signals, &number);
}

#endif
