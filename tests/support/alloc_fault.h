/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_ALLOC_FAULT_H
#define GPUSNAP_TEST_ALLOC_FAULT_H
/*
 * Make the n-th allocation fail, once or for ever. Included once by a program that is linked with
 * -Wl,--wrap=gsn_alloc,--wrap=gsn_grow.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

void *__real_gsn_alloc(size_t count, size_t size);
void *__real_gsn_grow(void *old, size_t old_count, size_t new_count, size_t size);
void *__wrap_gsn_alloc(size_t count, size_t size);
void *__wrap_gsn_grow(void *old, size_t old_count, size_t new_count, size_t size);

/* Atomic, since headers are parsed by several threads. */
static atomic_long allocations_left = -1; /* before the one that fails; negative: none does */
static atomic_bool allocations_stay_failing, allocation_failed;

static inline bool allocation_fails(void)
{
	long left = atomic_load(&allocations_left), next;

	do {
		if (left < 0)
			return false;
		next = left > 0 ? left - 1 : allocations_stay_failing ? 0 : -1;
	} while (!atomic_compare_exchange_weak(&allocations_left, &left, next));
	if (left > 0)
		return false;
	allocation_failed = true;
	return true;
}

/* True if the call since alloc_fault_set(n) reached its n-th allocation. */
static inline bool alloc_fault_hit(void)
{
	return allocations_left < 0 || allocation_failed;
}

static inline void alloc_fault_set(long n)
{
	allocations_stay_failing = false;
	allocation_failed = false;
	allocations_left = n;
}

/* The n-th and all after it, until the next set. */
static inline void alloc_fault_set_for_ever(long n)
{
	alloc_fault_set(n);
	allocations_stay_failing = true;
}

void *__wrap_gsn_alloc(size_t count, size_t size)
{
	return allocation_fails() ? NULL : __real_gsn_alloc(count, size);
}

void *__wrap_gsn_grow(void *old, size_t old_count, size_t new_count, size_t size)
{
	return allocation_fails() ? NULL : __real_gsn_grow(old, old_count, new_count, size);
}

#endif
