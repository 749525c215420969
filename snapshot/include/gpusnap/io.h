/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_IO_H
#define GPUSNAP_IO_H
/* How files are read and written: engine, direct or cached, depth, progress. Shared by all jobs. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gpusnap_io_engine {
	GPUSNAP_IO_AUTO,    /* the first that passes a probe */
	GPUSNAP_IO_URING,   /* io_uring, registered buffers where the memory limit allows */
	GPUSNAP_IO_AIO,	    /* Linux AIO; with O_DIRECT only, which it therefore asks for */
	GPUSNAP_IO_THREADS, /* pread/pwrite by worker threads */
	GPUSNAP_IO_MMAP,    /* gpusnap_load() only: out of a mapping of the page cache */
} gpusnap_io_engine;

typedef enum gpusnap_io_direct {
	GPUSNAP_DIRECT_AUTO, /* O_DIRECT where the file system honours it */
	GPUSNAP_DIRECT_ON,   /* O_DIRECT or an error */
	GPUSNAP_DIRECT_OFF,  /* through the page cache */
} gpusnap_io_direct;

typedef struct gpusnap_io_options {
	size_t struct_size;
	gpusnap_io_engine engine;
	gpusnap_io_direct direct;
	uint32_t depth;	      /* requests in flight; default 8, at most 1024 */
	uint64_t block_bytes; /* size of one; default 4 MiB, at most 64; rounded up to 64 KiB */
	/* Called after each block with what is done; a non-zero answer cancels the job: E_IO with
	 * ECANCELED. May be NULL. */
	int (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total);
	void *user;
} gpusnap_io_options;
#define GPUSNAP_IO_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.struct_size = sizeof(gpusnap_io_options)                                          \
	}

/* What was used, and why. */
typedef struct gpusnap_io_report {
	const char *engine; /* "uring", "aio", "threads", "mmap"; static */
	bool direct;
	char file_system[16];	      /* "ext4", "tmpfs", ... or its magic number */
	uint32_t alignment;	      /* that direct I/O needs there; 0 when it is cached */
	const char *alignment_source; /* "statx" or "probe"; static; "" when it is cached */
	bool registered;	      /* buffers registered with the kernel */
	uint32_t depth;
	uint64_t block_bytes;
	uint64_t bytes;	  /* moved between file and memory */
	double seconds;	  /* wall clock, whole job */
	char reason[400]; /* why this engine and not those before it, why direct or not; for -v */
} gpusnap_io_report;

/** "auto", "uring", "aio", "threads", "mmap". E_INVALID otherwise. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_io_engine_parse(
	const char *name, gpusnap_io_engine *ret_engine, gpusnap_error *err);
/** "auto", "on", "off". */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_io_direct_parse(
	const char *name, gpusnap_io_direct *ret_direct, gpusnap_error *err);
/** The names that the two above take; NULL for no such value. */
GPUSNAP_API const char *gpusnap_io_engine_name(gpusnap_io_engine engine);
GPUSNAP_API const char *gpusnap_io_direct_name(gpusnap_io_direct direct);
/** What save would use in this directory (probe file made and removed). For `doctor`. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_io_probe(const char *directory,
	const gpusnap_io_options *options, gpusnap_io_report *ret_report, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
