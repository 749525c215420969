/* SPDX-License-Identifier: Apache-2.0 */
#include <gpusnap/status.h>

int main(void)
{
	return gpusnap_status_exit(GPUSNAP_E_UNSUPPORTED);
}
