/* SPDX-License-Identifier: Apache-2.0 */
#include <gpusnap/status.h>
