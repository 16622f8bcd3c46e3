/* SPDX-License-Identifier: GPL-2.0 */
/* The hooks: requests on their way in, answers on their way out. */
#ifndef TARN_CLASSES_HOOKS_H
#define TARN_CLASSES_HOOKS_H

#include "services.h"

int hooks_register(struct services *services);

/* No packet is in the hooks any more when this returns. */
void hooks_unregister(struct services *services);

#endif
