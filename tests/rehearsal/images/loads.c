/* Rehearsal: the server's loads. A config that comes with one asks for a GPU; it is given the CPU, as the
   configs in the repository are (tritonserver). And what was laid out before is linked first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITS_OWN(name) ((void *(*)())dlsym(RTLD_NEXT, name))

static const useconds_t UNTIL_LINKED = 100 * 1000;

void *TRITONSERVER_ParameterNew(const char *name, int type, const void *value)
{
    void *(*made)() = ITS_OWN("TRITONSERVER_ParameterNew");
    if (strcmp(name, "config"))
        return made(name, type, value);
    char *config = strdup(value);
    for (char *found = config; (found = strstr(found, "KIND_GPU"));)
        memcpy(found, "KIND_CPU", strlen("KIND_CPU"));
    void *parameter = made(name, type, config);
    free(config);
    return parameter;
}

void *TRITONSERVER_ServerLoadModel(void *server, const char *model)
{
    usleep(UNTIL_LINKED);
    return ITS_OWN("TRITONSERVER_ServerLoadModel")(server, model);
}

void *TRITONSERVER_ServerLoadModelWithParameters(
    void *server, const char *model, const void **parameters, const unsigned long count)
{
    usleep(UNTIL_LINKED);
    return ITS_OWN("TRITONSERVER_ServerLoadModelWithParameters")(server, model, parameters, count);
}
