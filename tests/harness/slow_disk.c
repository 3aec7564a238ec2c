// Preloaded into a server: while the file $SLOW_DISK exists, each sync of a file takes six seconds more.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { kSeconds = 6 };

static int Late(const char* name, int file) {
  const char* switched = getenv("SLOW_DISK");
  if (switched != NULL && access(switched, F_OK) == 0) sleep(kSeconds);
  int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  return sync(file);
}

int fsync(int file) { return Late("fsync", file); }
int fdatasync(int file) { return Late("fdatasync", file); }
