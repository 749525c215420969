/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_DEVICE_MODULE_H
#define GSN_DEVICE_MODULE_H
/* Device modules: shared objects beside this library that carry one device kind. */
#include "kernels/device_ops.h"

/* Find and load libgpusnap-KIND.so. E_NODEV when it is nowhere or does not load. */
gpusnap_status gsn_device_module_open(
	const char *kind, const struct gsn_device_ops **ret_ops, gpusnap_error *err);
/* Load the module at `path`, take its table and check it. It stays loaded. */
gpusnap_status gsn_device_module_load(const char *path, const char *kind,
	const struct gsn_device_ops **ret_ops, gpusnap_error *err);
/* ABI number, kind and slots of a table that `origin` gave. */
gpusnap_status gsn_device_table_check(
	const struct gsn_device_ops *ops, const char *kind, const char *origin, gpusnap_error *err);

#endif
