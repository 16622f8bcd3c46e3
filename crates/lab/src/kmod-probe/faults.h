/* SPDX-License-Identifier: GPL-2.0 */
/* What a module must not do, done on purpose: proves that a debug kernel finds it. */
#ifndef TARN_PROBE_FAULTS_H
#define TARN_PROBE_FAULTS_H

/* Commits the fault of that name. -EINVAL when there is none. */
int fault_commit(const char *name);

#endif
