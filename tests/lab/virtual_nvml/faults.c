/* Copyright: (c) 2026, the gpufleet.nvidia authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Failures on demand, and the record of calls. A rule is SYMBOL:ACTION[:nth=N][:count=K]; SYMBOL may hold * and ?.
 *
 *   error=NAME        answer NAME without doing anything      error-after=NAME  do it, then answer NAME
 *   kill              SIGKILL before anything is done         kill-after        do it, then SIGKILL
 *   delay=MS, hang=S  wait, then do it; a wait of the file's ends when its rules are cleared
 *
 * nth and count choose the matching calls: N to N+K-1; nth alone is one call; neither is every call. Rules come from the
 * file beside the state (they count the calls of all processes together) and from VIRTUAL_GPU_FAIL (this process alone).
 * Beside NVML's symbols the pseudo calls gpuReset, moduleLoad and moduleUnload can be hit.
 */
#define _GNU_SOURCE
#include "model.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct { nvmlReturn_t code; const char *name; } error_names[] = {
    {0, "SUCCESS"}, {1, "UNINITIALIZED"}, {2, "INVALID_ARGUMENT"}, {3, "NOT_SUPPORTED"}, {4, "NO_PERMISSION"}, {5, "ALREADY_INITIALIZED"},
    {6, "NOT_FOUND"}, {7, "INSUFFICIENT_SIZE"}, {8, "INSUFFICIENT_POWER"}, {9, "DRIVER_NOT_LOADED"}, {10, "TIMEOUT"}, {11, "IRQ_ISSUE"},
    {12, "LIBRARY_NOT_FOUND"}, {13, "FUNCTION_NOT_FOUND"}, {14, "CORRUPTED_INFOROM"}, {15, "GPU_IS_LOST"}, {16, "RESET_REQUIRED"},
    {17, "OPERATING_SYSTEM"}, {18, "LIB_RM_VERSION_MISMATCH"}, {19, "IN_USE"}, {20, "MEMORY"}, {21, "NO_DATA"},
    {22, "VGPU_ECC_NOT_SUPPORTED"}, {23, "INSUFFICIENT_RESOURCES"}, {24, "FREQ_NOT_SUPPORTED"}, {25, "ARGUMENT_VERSION_MISMATCH"},
    {26, "DEPRECATED"}, {27, "NOT_READY"}, {28, "GPU_NOT_FOUND"}, {29, "INVALID_STATE"}, {30, "RESET_TYPE_NOT_SUPPORTED"}, {999, "UNKNOWN"},
};
enum { ERROR_COUNT = sizeof error_names / sizeof error_names[0], MAX_RULES = 32, RULE_SIZE = 200 };

const char *nvml_error_name(nvmlReturn_t code)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (error_names[i].code == code)
            return error_names[i].name;
    return NULL;
}

int nvml_error_by_name(const char *name)
{
    if (strncasecmp(name, "NVML_", 5) == 0)
        name += 5;
    if (strncasecmp(name, "ERROR_", 6) == 0)
        name += 6;
    for (int i = 0; i < ERROR_COUNT; i++)
        if (strcasecmp(error_names[i].name, name) == 0)
            return error_names[i].code;
    char *end;
    long code = strtol(name, &end, 10);
    return *name && !*end ? (int)code : -1;
}

const char *path_faults(void)
{
    static __thread char path[600];
    snprintf(path, sizeof path, "%s.faults", path_state());
    return path;
}

const char *path_trace(void)
{
    static __thread char path[600];
    snprintf(path, sizeof path, "%s.trace", path_state());
    return path;
}

/* ---- Rules ---- */

enum action { ACTION_ERROR, ACTION_ERROR_AFTER, ACTION_KILL, ACTION_KILL_AFTER, ACTION_DELAY };
struct rule { char text[RULE_SIZE], symbol[96]; enum action action; long value, nth, count, seen; };

static bool parse_action(struct rule *rule, const char *word, const char **reason)
{
    static const struct { const char *name; enum action action; int scale; } actions[] = {
        {"error", ACTION_ERROR, 0}, {"error-after", ACTION_ERROR_AFTER, 0}, {"kill", ACTION_KILL, -1},
        {"kill-after", ACTION_KILL_AFTER, -1}, {"delay", ACTION_DELAY, 1}, {"hang", ACTION_DELAY, 1000},
    };
    size_t length = strcspn(word, "=");
    const char *value = word[length] ? word + length + 1 : "";
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strlen(actions[i].name) != length || strncmp(actions[i].name, word, length) != 0)
            continue;
        rule->action = actions[i].action;
        char *end;
        if (actions[i].scale > 0) {
            rule->value = strtol(value, &end, 10) * actions[i].scale;
            *reason = "the time is a whole number";
            return *value && !*end && rule->value >= 0;
        }
        if (actions[i].scale == 0)
            rule->value = nvml_error_by_name(value);
        *reason = actions[i].scale == 0 ? "no NVML error of this name" : "this action takes no value";
        return actions[i].scale == 0 ? rule->value >= 0 : !*value;
    }
    *reason = "the action is error=NAME, error-after=NAME, kill, kill-after, delay=MS or hang=S";
    return false;
}

static bool parse_rule(struct rule *rule, const char *text, const char **reason)
{
    char copy[RULE_SIZE], *rest = copy, *word;
    int position = 0;
    *rule = (struct rule){.nth = 0, .count = 0};
    snprintf(rule->text, sizeof rule->text, "%s", text);
    snprintf(copy, sizeof copy, "%s", text);
    *reason = "a rule is SYMBOL:ACTION[:nth=N][:count=K]";
    while ((word = strsep(&rest, ":")) != NULL) {
        if (position == 0)
            snprintf(rule->symbol, sizeof rule->symbol, "%s", word);
        else if (position == 1 && !parse_action(rule, word, reason))
            return false;
        else if (strncmp(word, "nth=", 4) == 0)
            rule->nth = atol(word + 4);
        else if (strncmp(word, "count=", 6) == 0)
            rule->count = atol(word + 6);
        else if (position > 1)
            return false;
        position++;
    }
    return position >= 2 && rule->symbol[0];
}

/* Count a matching call; true when it is one of the chosen ones. */
static bool fires(struct rule *rule)
{
    rule->seen++;
    if (rule->nth == 0 && rule->count == 0)
        return true;
    long first = rule->nth ? rule->nth : 1, number = rule->count ? rule->count : 1;
    return rule->seen >= first && rule->seen < first + number;
}

static int read_rules(int file, struct rule *rules)
{
    static __thread char text[MAX_RULES * (RULE_SIZE + 16)];
    const char *reason;
    int count = 0;
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL && count < MAX_RULES) {
        char *tab = strchr(line, '\t');
        if (tab && parse_rule(&rules[count], tab + 1, &reason))
            rules[count++].seen = atol(line);
    }
    return count;
}

static void write_rules(int file, const struct rule *rules, int count)
{
    char text[MAX_RULES * (RULE_SIZE + 16)];
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%ld\t%s\n", rules[i].seen, rules[i].text);
    if (pwrite(file, text, (size_t)length, 0) == length && ftruncate(file, length) != 0)
        perror("virtual-gpu: faults");
}

int fault_add(const char *text, const char **reason)
{
    struct rule rules[MAX_RULES], rule;
    if (!parse_rule(&rule, text, reason))
        return -1;
    make_parent(path_faults());
    int file = open(path_faults(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    *reason = "the file of rules cannot be written";
    if (file < 0)
        return -1;
    (void)!fchmod(file, 0666); /* the calls of every user are counted there */
    flock(file, LOCK_EX);
    int count = read_rules(file, rules);
    *reason = "too many rules";
    if (count < MAX_RULES)
        rules[count++] = rule, *reason = NULL;
    write_rules(file, rules, count);
    close(file);
    return *reason ? -1 : 0;
}

void fault_clear(void)
{
    unlink(path_faults());
}

static bool shared_rule(const char *symbol, struct rule *fired)
{
    struct rule rules[MAX_RULES];
    bool found = false, changed = false;
    int file = open(path_faults(), O_RDWR | O_CLOEXEC);
    if (file < 0)
        return false;
    flock(file, LOCK_EX);
    int count = read_rules(file, rules);
    for (int i = 0; i < count; i++)
        if (fnmatch(rules[i].symbol, symbol, 0) == 0) {
            changed = true;
            if (fires(&rules[i]) && !found)
                *fired = rules[i], found = true;
        }
    if (changed)
        write_rules(file, rules, count);
    close(file);
    return found;
}

static bool own_rule(const char *symbol, struct rule *fired)
{
    static struct rule rules[MAX_RULES];
    static int count = -1;
    const char *reason;
    bool found = false;
    if (count < 0) {
        count = 0;
        const char *value = secure_getenv("VIRTUAL_GPU_FAIL");
        char copy[MAX_RULES * RULE_SIZE], *rest = copy, *word;
        snprintf(copy, sizeof copy, "%s", value ? value : "");
        while ((word = strsep(&rest, ",; ")) != NULL && count < MAX_RULES) {
            if (*word && !parse_rule(&rules[count], word, &reason)) {
                fprintf(stderr, "VIRTUAL_GPU_FAIL: %s: %s\n", word, reason);
                abort();
            }
            count += *word != '\0';
        }
    }
    for (int i = 0; i < count; i++)
        if (fnmatch(rules[i].symbol, symbol, 0) == 0 && fires(&rules[i]) && !found)
            *fired = rules[i], found = true;
    return found;
}

/* ---- Around every call ---- */

static __thread struct rule after;
static __thread bool after_is_set;

static void record(const char *symbol, const char *result)
{
    char line[200];
    int file = open(path_trace(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0)
        return;
    int length = snprintf(line, sizeof line, "%d %s %s\n", (int)getpid(), symbol, result);
    (void)!write(file, line, (size_t)length);
    close(file);
}

static void record_code(const char *symbol, nvmlReturn_t code)
{
    const char *name = nvml_error_name(code);
    record(symbol, name ? name : "?");
}

static void wait_for(long milliseconds, bool own)
{
    for (long left = milliseconds; left > 0 && (own || access(path_faults(), F_OK) == 0); left -= 100) {
        long part = left < 100 ? left : 100;
        nanosleep(&(struct timespec){0, part * 1000000}, NULL);
    }
}

nvmlReturn_t call_begin(const char *symbol)
{
    struct rule rule;
    after_is_set = false;
    bool own = own_rule(symbol, &rule);
    if (!own && !shared_rule(symbol, &rule))
        return FAULT_NONE;
    switch (rule.action) {
    case ACTION_ERROR:
        record_code(symbol, (nvmlReturn_t)rule.value);
        return (nvmlReturn_t)rule.value;
    case ACTION_KILL:
        record(symbol, "killed-before");
        raise(SIGKILL);
        break;
    case ACTION_DELAY:
        wait_for(rule.value, own);
        break;
    default:
        after = rule;
        after_is_set = true;
    }
    return FAULT_NONE;
}

nvmlReturn_t call_end(const char *symbol, nvmlReturn_t result)
{
    if (after_is_set) {
        after_is_set = false;
        if (after.action == ACTION_KILL_AFTER) {
            record(symbol, "killed-after");
            raise(SIGKILL);
        }
        result = (nvmlReturn_t)after.value;
    }
    record_code(symbol, result);
    return result;
}
