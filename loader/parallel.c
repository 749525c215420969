/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/parallel.h"

#include <unistd.h>

#include "formats/base/bytes.h"

uint32_t gsn_parallel_threads(uint64_t tasks)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t threads = gsn_min(cpus < 1 ? 1 : (uint64_t)cpus, GSN_LOAD_THREADS_MAX);

	return (uint32_t)gsn_max(gsn_min(threads, tasks), 1);
}

gpusnap_status gsn_parallel_run(
	gsn_pool_fn function, void *argument, uint64_t tasks, gpusnap_error *err)
{
	struct gsn_pool *pool = NULL;
	gpusnap_status st = gsn_pool_create(gsn_parallel_threads(tasks), &pool, err);

	if (st)
		return st;
	gsn_pool_run(pool, function, argument, tasks);
	gsn_pool_destroy(pool);
	return GPUSNAP_OK;
}
