/* Marks what the shared library exports; everything else in it is hidden. For C and C++. */
#ifndef DELTAWIRE_EXPORT_H
#define DELTAWIRE_EXPORT_H

#define DELTAWIRE_API __attribute__((visibility("default")))
/* Hides what is nested in an exported class. */
#define DELTAWIRE_HIDDEN __attribute__((visibility("hidden")))

#endif
