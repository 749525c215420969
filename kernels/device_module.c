/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device modules: where they are looked for, loading, and the check of the table they give. A
 * module is looked for only beside the file that holds this code and beside the executable (and in
 * the ../lib of either), never along a search path, so that no other directory can supply code.
 * It is never unloaded: vendor runtimes keep threads and exit handlers.
 */
#include "kernels/device_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/fail.h"

#define SLOT(name)                                                                                 \
	{                                                                                          \
		offsetof(struct gsn_device_ops, name), #name                                       \
	}
static const struct table_slot {
	size_t offset;
	const char *name;
} table_slots[] = {
	SLOT(count),
	SLOT(open),
	SLOT(close),
	SLOT(query),
	SLOT(reserve),
	SLOT(map),
	SLOT(unmap),
	SLOT(release),
	SLOT(pinned_alloc),
	SLOT(pin),
	SLOT(unpin),
	SLOT(pinned_free),
	SLOT(stream_create),
	SLOT(stream_destroy),
	SLOT(stream_sync),
	SLOT(event_create),
	SLOT(event_destroy),
	SLOT(event_record),
	SLOT(event_sync),
	SLOT(stream_wait),
	SLOT(copy),
	SLOT(copy_strided),
	SLOT(fill),
	SLOT(digest),
	SLOT(moe_scratch_bytes),
	SLOT(moe_route),
	SLOT(moe_localise),
	SLOT(moe_experts),
	SLOT(moe_combine),
	SLOT(rms_norm),
};
#undef SLOT

typedef void (*slot_function)(void);

enum { SLOT_COUNT = sizeof table_slots / sizeof table_slots[0] };
_Static_assert(offsetof(struct gsn_device_ops, count) + SLOT_COUNT * sizeof(slot_function) ==
		       sizeof(struct gsn_device_ops),
	"a slot of struct gsn_device_ops is missing from table_slots");

gpusnap_status gsn_device_table_check(
	const struct gsn_device_ops *ops, const char *kind, const char *origin, gpusnap_error *err)
{
	slot_function function;

	if (ops->abi != GSN_DEVICE_ABI)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"device module '%s' has ABI %u, this build needs %u; install both from one "
			"release",
			origin, ops->abi, GSN_DEVICE_ABI);
	if (!ops->kind || strcmp(ops->kind, kind) != 0)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"device module '%s' is for '%s', not for '%s'", origin,
			ops->kind ? ops->kind : "(none)", kind);
	for (size_t i = 0; i < SLOT_COUNT; i++) {
		memcpy(&function, (const char *)ops + table_slots[i].offset, sizeof function);
		if (!function)
			return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
				"device module '%s' does not provide '%s'", origin,
				table_slots[i].name);
	}
	return GPUSNAP_OK;
}

gpusnap_status gsn_device_module_load(const char *path, const char *kind,
	const struct gsn_device_ops **ret_ops, gpusnap_error *err)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	gsn_device_module_fn function;
	const struct gsn_device_ops *ops;
	void *symbol;
	gpusnap_status status;

	if (!handle)
		return gsn_fail(err, GPUSNAP_E_NODEV, "device kind '%s': module does not load: %s",
			kind, dlerror());
	symbol = dlsym(handle, GSN_DEVICE_MODULE_SYMBOL);
	if (!symbol)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"'%s' is not a device module: it has no symbol '%s'", path,
			GSN_DEVICE_MODULE_SYMBOL);
	memcpy(&function, &symbol, sizeof function);
	ops = function();
	if (!ops)
		return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
			"device module '%s' gave no device table", path);
	status = gsn_device_table_check(ops, kind, path, err);
	if (!status)
		*ret_ops = ops;
	return status;
}

/* Cut an absolute file path back to its directory; false when it is not absolute. */
static bool cut_to_directory(char *path)
{
	char *slash = strrchr(path, '/');

	if (path[0] != '/' || !slash)
		return false;
	*slash = '\0';
	return true;
}

/* Directory of the object that holds this code. Of a static program, dladdr knows only argv[0]. */
static bool code_directory(char path[PATH_MAX])
{
	Dl_info info;

	if (!dladdr(table_slots, &info) || strlen(info.dli_fname) >= PATH_MAX)
		return false;
	memcpy(path, info.dli_fname, strlen(info.dli_fname) + 1);
	return cut_to_directory(path);
}

static bool executable_directory(char path[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (length <= 0)
		return false;
	path[length] = '\0';
	return cut_to_directory(path);
}

/* Put the module's path into `path` if there is such a file in the directory or in its ../lib. */
static bool find_beside(const char *directory, const char *kind, char path[PATH_MAX])
{
	int length = snprintf(path, PATH_MAX, "%s/libgpusnap-%s.so", directory, kind);
	if (length > 0 && length < PATH_MAX && access(path, F_OK) == 0)
		return true;
	length = snprintf(path, PATH_MAX, "%s/../lib/libgpusnap-%s.so", directory, kind);
	return length > 0 && length < PATH_MAX && access(path, F_OK) == 0;
}

gpusnap_status gsn_device_module_open(
	const char *kind, const struct gsn_device_ops **ret_ops, gpusnap_error *err)
{
	char code[PATH_MAX] = "";
	char executable[PATH_MAX] = "";
	char path[PATH_MAX];

	if (code_directory(code) && find_beside(code, kind, path))
		return gsn_device_module_load(path, kind, ret_ops, err);
	if (executable_directory(executable) && find_beside(executable, kind, path))
		return gsn_device_module_load(path, kind, ret_ops, err);
	return gsn_fail(err, GPUSNAP_E_NODEV,
		"device kind '%s': there is no libgpusnap-%s.so in '%.150s' or its ../lib", kind,
		kind, executable[0] ? executable : code);
}
