// The plain loop: one trajectory after the other, the method's sums written out (`STAGE_SUMS`
// and friends come from the tableau, as text in front of this file), the same step control.

template <class T>
struct lorenz {
    static constexpr int n = 3;
    static void eval(T, const T* y, const T* p, T* d) {
        d[0] = T(10) * (y[1] - y[0]);
        d[1] = y[0] * (p[0] - y[2]) - y[1];
        d[2] = y[0] * y[1] - T(8.0 / 3.0) * y[2];
    }
};

template <class T>
struct lotka_volterra {
    static constexpr int n = 2;
    static void eval(T, const T* y, const T* p, T* d) {
        d[0] = p[0] * y[0] - p[1] * y[0] * y[1];
        d[1] = p[2] * y[0] * y[1] - p[3] * y[1];
    }
};

template <class T>
struct van_der_pol {
    static constexpr int n = 2;
    static void eval(T, const T* y, const T* p, T* d) {
        d[0] = y[1];
        d[1] = p[0] * (T(1) - y[0] * y[0]) * y[1] - y[0];
    }
};

template <class T>
struct mlp {  // weights one after the other: w1, b1, w2, b2, w3, b3
    static constexpr int n = 2, h = 32;
    static void eval(T, const T* y, const T* p, T* d) {
        const T *w1 = p, *b1 = w1 + h * n, *w2 = b1 + h, *b2 = w2 + h * h, *w3 = b2 + h,
                *b3 = w3 + n * h;
        T x[h], z[h];
        for (int i = 0; i < h; ++i) x[i] = std::tanh(b1[i] + w1[i * n] * y[0] + w1[i * n + 1] * y[1]);
        for (int i = 0; i < h; ++i) {
            T sum = b2[i];
            for (int j = 0; j < h; ++j) sum += w2[i * h + j] * x[j];
            z[i] = std::tanh(sum);
        }
        for (int i = 0; i < n; ++i) {
            T sum = b3[i];
            for (int j = 0; j < h; ++j) sum += w3[i * h + j] * z[j];
            d[i] = sum;
        }
    }
};

template <class T, class F>
T first_step(const T* y, const T* k1, const T* p, T span, T rtol, T atol) {
    T d0 = 0, d1 = 0, d2 = 0, z[F::n], k2[F::n];
    for (int i = 0; i < F::n; ++i) {
        const T scale = atol + rtol * std::abs(y[i]);
        d0 += (y[i] / scale) * (y[i] / scale);
        d1 += (k1[i] / scale) * (k1[i] / scale);
    }
    const T rough = d0 < T(1e-10) || d1 < T(1e-10) ? T(1e-6) : T(0.01) * std::sqrt(d0 / d1);
    for (int i = 0; i < F::n; ++i) z[i] = y[i] + rough * k1[i];
    F::eval(rough, z, p, k2);
    for (int i = 0; i < F::n; ++i) {
        const T e = (k2[i] - k1[i]) / (atol + rtol * std::abs(y[i]));
        d2 += e * e;
    }
    const T largest = std::sqrt(std::max(d1, d2 / (rough * rough)) / F::n);
    const T fine = largest <= T(1e-15) ? std::max(T(1e-6), rough * T(1e-3))
                                       : std::pow(T(0.01) / largest, T(0.2));
    return std::min(std::min(T(100) * rough, fine), span);
}

// Returns the number of tried steps, negative if there were too many.
template <class T, class F>
long solve(const T* y0, const T* p, T t1, long n_saves, const T* times, T rtol, T atol, T* out) {
    constexpr int n = F::n;
    constexpr long max_steps = 100000;
    T y[n], k[STAGES][n], z[n], t = 0, old = T(1e-4);
    for (int i = 0; i < n; ++i) y[i] = y0[i];
    F::eval(t, y, p, k[0]);
    T h = first_step<T, F>(y, k[0], p, t1, rtol, atol);
    long saved = 0;
    for (long steps = 1; steps <= max_steps; ++steps) {
        const bool last = t1 - t <= h * T(1.01);
        if (last) h = t1 - t;
        STAGE_SUMS
        T sum = 0;
        for (int i = 0; i < n; ++i) {
            const T scale = atol + rtol * std::max(std::abs(y[i]), std::abs(z[i]));
            const T e = h * (ERROR_SUM) / scale;
            sum += e * e;
        }
        const T error = std::sqrt(sum / n);
        T factor = T(0.9) * std::pow(error, T(-(0.2 - 0.03))) * std::pow(old, T(0.04));
        factor = std::min(T(10), std::max(T(0.2), factor));
        if (error <= T(1)) {
            const T end = last ? t1 : t + h;
            for (; saved < n_saves && times[saved] <= end; ++saved) {
                const T x = (times[saved] - t) / h;
                for (int i = 0; i < n; ++i) out[saved * n + i] = y[i] + h * (DENSE_SUM);
            }
            t = end;
            for (int i = 0; i < n; ++i) {
                y[i] = z[i];
                k[0][i] = k[STAGES - 1][i];
            }
            old = std::max(error, T(1e-4));
            if (last) {
                if (!n_saves)
                    for (int i = 0; i < n; ++i) out[i] = y[i];
                return steps;
            }
        }
        h *= factor;
    }
    return -max_steps;
}

template <class T, class F>
long solve_all(long n_traj, const T* y0, long y0_stride, const T* p, long p_stride, double t1,
               long n_saves, const T* times, double tol, T* out) {
    const long rows = n_saves ? n_saves : 1;
    long steps = 0, failed = 0;
    for (long i = 0; i < n_traj; ++i) {
        const long used = solve<T, F>(y0 + i * y0_stride, p + i * p_stride, T(t1), n_saves, times,
                                      T(tol), T(tol), out + i * rows * F::n);
        steps += used < 0 ? -used : used;
        failed += used < 0;
    }
    return failed ? -failed : steps;
}

#define EXPORT(name, T, suffix)                                                                  \
    extern "C" long name##_##suffix(long n, const T* y0, long y0_stride, const T* p,            \
                                    long p_stride, double t1, long n_saves, const T* times,     \
                                    double tol, T* out) {                                       \
        return solve_all<T, name<T>>(n, y0, y0_stride, p, p_stride, t1, n_saves, times, tol,    \
                                     out);                                                      \
    }
#define EXPORT_BOTH(name) EXPORT(name, double, float64) EXPORT(name, float, float32)
EXPORT_BOTH(lorenz)
EXPORT_BOTH(lotka_volterra)
EXPORT_BOTH(van_der_pol)
EXPORT_BOTH(mlp)
