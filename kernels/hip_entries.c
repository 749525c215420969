/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HIP runtime as the module links to it: each function that it calls, passed on to the
 * libamdhip64.so that is found on first use. So the module loads where there is none, and is not
 * bound to the version that it was built with. Without the library every call answers
 * hipErrorInsufficientDriver. Functions whose names begin with __hip are those that compiled
 * kernel launches call.
 */
#include "kernels/hip_entries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <hip/hip_runtime_api.h>

/* What compilers emit calls of, and no header declares. */
void **__hipRegisterFatBinary(const void *data);
void __hipUnregisterFatBinary(void **modules);
void __hipRegisterFunction(void **modules, const void *host, char *device, const char *name,
	unsigned threads, void *tid, void *bid, void *block, void *grid, int *warp);
void __hipRegisterVar(void **modules, void *variable, char *host, char *device, int external,
	size_t bytes, int constant, int global);

/*
 * FUNCTION(result, name, parameters, arguments, answer without the library), CALL where that is a
 * code, ACTION where there is none.
 */
#define CALL(name, parameters, arguments)                                                          \
	FUNCTION(hipError_t, name, parameters, arguments, hipErrorInsufficientDriver)

#define FUNCTIONS                                                                                  \
	FUNCTION(const char *, hipGetErrorName, (hipError_t code), (code),                         \
		"hipErrorInsufficientDriver")                                                      \
	FUNCTION(const char *, hipGetErrorString, (hipError_t code), (code), "no runtime library") \
	CALL(hipGetLastError, (void), ())                                                          \
	CALL(hipRuntimeGetVersion, (int *version), (version))                                      \
	CALL(hipGetDeviceCount, (int *count), (count))                                             \
	CALL(hipGetDevice, (int *device), (device))                                                \
	CALL(hipSetDevice, (int device), (device))                                                 \
	CALL(hipDeviceGetName, (char *name, int bytes, hipDevice_t device), (name, bytes, device)) \
	CALL(hipDeviceGetAttribute, (int *value, hipDeviceAttribute_t attribute, int device),      \
		(value, attribute, device))                                                        \
	CALL(hipMemGetInfo, (size_t * available, size_t * total), (available, total))              \
	CALL(hipMalloc, (void **memory, size_t bytes), (memory, bytes))                            \
	CALL(hipFree, (void *memory), (memory))                                                    \
	CALL(hipHostMalloc, (void **memory, size_t bytes, unsigned flags), (memory, bytes, flags)) \
	CALL(hipHostFree, (void *memory), (memory))                                                \
	CALL(hipHostRegister, (void *memory, size_t bytes, unsigned flags),                        \
		(memory, bytes, flags))                                                            \
	CALL(hipHostUnregister, (void *memory), (memory))                                          \
	CALL(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), (stream, flags))    \
	CALL(hipStreamDestroy, (hipStream_t stream), (stream))                                     \
	CALL(hipStreamSynchronize, (hipStream_t stream), (stream))                                 \
	CALL(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags),           \
		(stream, event, flags))                                                            \
	CALL(hipStreamAddCallback,                                                                 \
		(hipStream_t stream, hipStreamCallback_t run, void *argument, unsigned flags),     \
		(stream, run, argument, flags))                                                    \
	CALL(hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags), (event, flags))        \
	CALL(hipEventDestroy, (hipEvent_t event), (event))                                         \
	CALL(hipEventRecord, (hipEvent_t event, hipStream_t stream), (event, stream))              \
	CALL(hipEventQuery, (hipEvent_t event), (event))                                           \
	CALL(hipEventSynchronize, (hipEvent_t event), (event))                                     \
	CALL(hipMemcpyAsync,                                                                       \
		(void *to, const void *from, size_t bytes, hipMemcpyKind kind,                     \
			hipStream_t stream),                                                       \
		(to, from, bytes, kind, stream))                                                   \
	CALL(hipMemcpy2DAsync,                                                                     \
		(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,     \
			size_t height, hipMemcpyKind kind, hipStream_t stream),                    \
		(to, to_pitch, from, from_pitch, width, height, kind, stream))                     \
	CALL(hipMemsetAsync, (void *to, int value, size_t bytes, hipStream_t stream),              \
		(to, value, bytes, stream))                                                        \
	CALL(hipOccupancyMaxActiveBlocksPerMultiprocessor,                                         \
		(int *count, const void *kernel, int threads, size_t shared),                      \
		(count, kernel, threads, shared))                                                  \
	CALL(hipLaunchKernel,                                                                      \
		(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,       \
			hipStream_t stream),                                                       \
		(kernel, grid, block, arguments, shared, stream))                                  \
	CALL(__hipPushCallConfiguration,                                                           \
		(dim3 grid, dim3 block, size_t shared, hipStream_t stream),                        \
		(grid, block, shared, stream))                                                     \
	CALL(__hipPopCallConfiguration,                                                            \
		(dim3 * grid, dim3 * block, size_t * shared, hipStream_t * stream),                \
		(grid, block, shared, stream))                                                     \
	FUNCTION(void **, __hipRegisterFatBinary, (const void *data), (data), NULL)                \
	ACTION(__hipUnregisterFatBinary, (void **modules), (modules))                              \
	ACTION(__hipRegisterFunction,                                                              \
		(void **modules, const void *host, char *device, const char *name,                 \
			unsigned threads, void *tid, void *bid, void *block, void *grid,           \
			int *warp),                                                                \
		(modules, host, device, name, threads, tid, bid, block, grid, warp))               \
	ACTION(__hipRegisterVar,                                                                   \
		(void **modules, void *variable, char *host, char *device, int external,           \
			size_t bytes, int constant, int global),                                   \
		(modules, variable, host, device, external, bytes, constant, global))

typedef void (*entry_function)(void);

#define ACTION(name, parameters, arguments)		       FUNCTION(void, name, parameters, arguments, )
#define FUNCTION(result, name, parameters, arguments, without) INDEX_##name,
enum { FUNCTIONS FUNCTION_COUNT };
#undef FUNCTION

#define FUNCTION(result, name, parameters, arguments, without) #name,
static const char *const names[] = {FUNCTIONS};
#undef FUNCTION
#undef ACTION

/* The library once found. The process has one runtime, as if it were linked. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static entry_function entries[FUNCTION_COUNT];

/* A runtime that the process has already is the one to share its devices with. */
static void *open_library(void)
{
	static const char *const files[] = {
		"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
	static const int modes[] = {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW};
	void *handle = NULL;

	for (size_t m = 0; !handle && m < sizeof modes / sizeof modes[0]; m++)
		for (size_t f = 0; !handle && f < sizeof files / sizeof files[0]; f++)
			handle = dlopen(files[f], modes[m]);
	return handle;
}

/* All or none: a library that lacks what every version since 5.2 has is not that library. */
static void find_library(void)
{
	void *handle = open_library();

	for (size_t i = 0; handle && i < FUNCTION_COUNT; i++) {
		void *symbol = dlsym(handle, names[i]);

		if (!symbol)
			return;
		memcpy(&entries[i], &symbol, sizeof symbol);
	}
	library = handle;
}

static bool have_library(void)
{
	(void)pthread_once(&once, find_library);
	return library != NULL;
}

void *gsn_hip_entry(const char *name)
{
	return have_library() ? dlsym(library, name) : NULL;
}

/* Types and parameter lists stand without parentheses; HIP's headers name parameters otherwise. */
/* NOLINTBEGIN(bugprone-macro-parentheses, readability-*) */
#define FUNCTION(result, name, parameters, arguments, without)                                     \
	result name parameters                                                                     \
	{                                                                                          \
		if (!have_library())                                                               \
			return without;                                                            \
		return ((result(*) parameters)entries[INDEX_##name])arguments;                     \
	}
#define ACTION(name, parameters, arguments)                                                        \
	void name parameters                                                                       \
	{                                                                                          \
		if (have_library())                                                                \
			((void(*) parameters)entries[INDEX_##name]) arguments;                     \
	}
FUNCTIONS
/* NOLINTEND(bugprone-macro-parentheses, readability-*) */
