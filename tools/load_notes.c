/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/load_notes.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/text.h"
#include "tools/output.h"

enum { NOTE_TEXT = 512, NAMES_SHOWN = 3 };

static void note_unexpected(const char *command, const gpusnap_loaded *loaded)
{
	char text[NOTE_TEXT], quoted[GSN_QUOTE_BYTES];
	size_t used = (size_t)snprintf(text, sizeof text,
		"%u tensors are none of %s's, kept as they are:", loaded->unexpected_count,
		loaded->model->family);

	for (uint32_t i = 0; i < loaded->unexpected_count && i < NAMES_SHOWN; i++) {
		const char *name = loaded->unexpected[i];

		if (used < sizeof text)
			used += (size_t)snprintf(text + used, sizeof text - used, "%s %s",
				i ? "," : "", gsn_quote(name, strlen(name), quoted));
	}
	if (used < sizeof text && loaded->unexpected_count > NAMES_SHOWN)
		(void)snprintf(text + used, sizeof text - used, ", ... (--json lists them)");
	output_note(command, text);
}

void load_notes_print(const char *command, const gpusnap_loaded *loaded)
{
	const gpusnap_load_report *report = &loaded->report;
	char text[NOTE_TEXT], size[SIZE_TEXT];

	output_note(command, report->note);
	if (report->predictions) {
		(void)snprintf(text, sizeof text,
			"%llu tensors of layers for multi-token prediction are kept as they are",
			(unsigned long long)report->predictions);
		output_note(command, text);
	}
	if (report->padding) {
		(void)snprintf(text, sizeof text, "%s of the buffers are padding",
			format_size(report->padding, size));
		output_note(command, text);
	}
	if (loaded->unexpected_count)
		note_unexpected(command, loaded);
}

static gpusnap_json *list_names(const gpusnap_loaded *loaded)
{
	gpusnap_json *list = gpusnap_json_pack("[]");

	for (uint32_t i = 0; list && i < loaded->unexpected_count; i++)
		if (gpusnap_json_append(list, gpusnap_json_pack("s", loaded->unexpected[i]))) {
			gpusnap_json_free(list);
			list = NULL;
		}
	return list;
}

gpusnap_json *load_notes_add(gpusnap_json *result, const gpusnap_loaded *loaded)
{
	const gpusnap_load_report *report = &loaded->report;

	if (!result)
		return NULL;
	if (!gpusnap_json_set(result, "note", gpusnap_json_pack("s?", report->note)) &&
		!gpusnap_json_set(result, "predictions",
			gpusnap_json_pack("I", (long long)report->predictions)) &&
		!gpusnap_json_set(
			result, "padding", gpusnap_json_pack("I", (long long)report->padding)) &&
		!gpusnap_json_set(result, "unexpected", list_names(loaded)))
		return result;
	gpusnap_json_free(result);
	return NULL;
}
