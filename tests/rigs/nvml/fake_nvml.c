/* NVML as far as workers/devices.py asks it, answering from a text file that a test writes.
 *
 * NVIDIA_FAKE_STATE names the file. One line a GPU:
 *   uuid total_bytes used_bytes processes error [mig_uuid mig_total mig_used]
 * processes: how many (numbers from 1 on), -1 = not told; or "=PID,PID" for those.
 * error: an NVML return code for its memory, 0 = none; -1 = the call never returns. A first line
 * "init CODE" makes nvmlInit fail. Every look reads the file again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 8
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef struct { char uuid[96]; unsigned long long total, used; int processes, error; unsigned int pids[MOST]; } Gpu;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } Process;

static Gpu gpus[MOST], parts[MOST];
static int count, init_code;

static void list(Gpu *gpu, const char *text)
{
    gpu->processes = atoi(text);
    for (unsigned int at = 0; at < MOST; at++)
        gpu->pids[at] = 1 + at;
    if (*text != '=')
        return;
    for (gpu->processes = 0; text && gpu->processes < MOST; text = strchr(text + 1, ','))
        gpu->pids[gpu->processes++] = (unsigned int)atoi(text + 1);
}

static void look(void)
{
    char line[512], processes[96];
    FILE *file = fopen(getenv("NVIDIA_FAKE_STATE") ? getenv("NVIDIA_FAKE_STATE") : "", "r");
    count = init_code = 0;
    memset(parts, 0, sizeof parts);
    while (file && count < MOST && fgets(line, sizeof line, file)) {
        Gpu *gpu = &gpus[count], *part = &parts[count];
        if (sscanf(line, "init %d", &init_code) == 1)
            continue;
        if (sscanf(line, "%95s %llu %llu %95s %d %95s %llu %llu", gpu->uuid, &gpu->total, &gpu->used,
                   processes, &gpu->error, part->uuid, &part->total, &part->used) < 5)
            continue;
        list(gpu, processes);
        count++;
    }
    if (file)
        fclose(file);
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; look(); return init_code; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *found) { *found = (unsigned int)count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Gpu **device)
{
    if (index >= (unsigned int)count)
        return NOT_FOUND;
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "%s", gpu->uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(Gpu *gpu, char *name, unsigned int length)
{
    (void)gpu;
    snprintf(name, length, "Fake GPU");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, Memory *memory)
{
    while (gpu->error == -1)
        pause();
    if (gpu->error)
        return gpu->error;
    memory->total = gpu->total;
    memory->used = gpu->used;
    memory->reserved = 500ULL << 20;
    memory->free = gpu->total - gpu->used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned int *room, Process *found)
{
    unsigned int wanted = gpu->processes > 0 ? (unsigned int)gpu->processes : 0;
    if (gpu->processes < 0)
        return NOT_SUPPORTED;
    if (wanted == 0) {
        *room = 0;
        return SUCCESS;
    }
    if (!found || *room < wanted) {
        *room = wanted;
        return TOO_SMALL;
    }
    for (unsigned int at = 0; at < wanted; at++)
        found[at] = (Process){.pid = gpu->pids[at], .used = 1};
    *room = wanted;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned int *now, unsigned int *later)
{
    *now = *later = parts[gpu - gpus].uuid[0] != 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned int *slots) { (void)gpu; *slots = 2; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned int index, Gpu **part)
{
    if (index != 1 || !parts[gpu - gpus].uuid[0])
        return NOT_FOUND;
    *part = &parts[gpu - gpus];
    return SUCCESS;
}
