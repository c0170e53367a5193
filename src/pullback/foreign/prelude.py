"""Text in front of the user's code: what Enzyme, or a C++ compiler given C, cannot do by itself."""

from __future__ import annotations

__all__ = ["CPP", "C_BEGIN", "C_END"]

# Lanczos' approximation with g = 7 and nine terms, good to 1e-15 (Godfrey 2001); Enzyme crashes on
# calls of the library's functions.
_GAMMA = """
#include <cmath>
#include <math.h>
static inline double pullback_lgamma_right(double x) {
  double a = 0.99999999999980993;
  a += 676.5203681218851 / x - 1259.1392167224028 / (x + 1) + 771.32342877765313 / (x + 2);
  a += -176.61502916214059 / (x + 3) + 12.507343278686905 / (x + 4) - 0.13857109526572012 / (x + 5);
  a += 9.9843695780195716e-6 / (x + 6) + 1.5056327351493116e-7 / (x + 7);
  const double t = x + 6.5;
  return 0.91893853320467274178 + (x - 0.5) * ::log(t) - t + ::log(a);
}
static inline double pullback_lgamma(double x) {
  if (x >= 0.5) return pullback_lgamma_right(x);
  return ::log(3.14159265358979323846 / ::fabs(::sin(3.14159265358979323846 * x)))
    - pullback_lgamma_right(1 - x);
}
static inline double pullback_tgamma(double x) {
  if (x >= 0.5) return ::exp(pullback_lgamma_right(x));
  return 3.14159265358979323846
    / (::sin(3.14159265358979323846 * x) * ::exp(pullback_lgamma_right(1 - x)));
}
namespace std { using ::pullback_lgamma; using ::pullback_tgamma; }
#define lgamma pullback_lgamma
#define tgamma pullback_tgamma
"""

CPP = _GAMMA

# C converts pointers to void into others by itself.
C_BEGIN = (
    _GAMMA
    + """
#include <stdlib.h>
#include <string.h>
struct pullback_memory {
  void* at;
  template <class T> operator T*() const { return static_cast<T*>(at); }
};
static inline pullback_memory pullback_malloc(size_t n) { return {malloc(n)}; }
static inline pullback_memory pullback_calloc(size_t n, size_t m) { return {calloc(n, m)}; }
static inline pullback_memory pullback_realloc(void* p, size_t n) { return {realloc(p, n)}; }
#define malloc pullback_malloc
#define calloc pullback_calloc
#define realloc pullback_realloc
#define restrict __restrict
#define _Bool bool
extern "C" {
"""
)
C_END = "}\n"
