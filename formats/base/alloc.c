/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *gsn_alloc(size_t count, size_t size)
{
	return calloc(count ? count : 1, size ? size : 1);
}

void *gsn_grow(void *old, size_t old_count, size_t new_count, size_t size)
{
	void *grown = gsn_alloc(new_count, size);

	if (!grown)
		return NULL;
	if (old)
		memcpy(grown, old, old_count * size);
	gsn_free(old);
	return grown;
}

char *gsn_strdup(const char *text)
{
	return gsn_strndup(text, strlen(text));
}

char *gsn_strndup(const char *text, size_t length)
{
	char *copy = gsn_alloc(length + 1, 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

char *gsn_printf(const char *format, ...)
{
	va_list args;
	int length;
	char *text;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (length < 0)
		return NULL;
	text = gsn_alloc((size_t)length + 1, 1);
	if (!text)
		return NULL;
	va_start(args, format);
	(void)vsnprintf(text, (size_t)length + 1, format, args);
	va_end(args);
	return text;
}

void gsn_free(void *memory)
{
	free(memory);
}
