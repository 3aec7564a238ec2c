# A build for aarch64 on another machine, with the libraries that scripts/debian_root.sh has unpacked:
#
#   cmake --toolchain cmake/Aarch64.cmake -DMSPROBE_ROOT=DIR -DMSPROBE_PYTHON=DIR/python -DMSPROBE_TORCH=DIR2 ...
#
# The compiler and the generators are this machine's; programs run under qemu-user.

set(MSPROBE_ROOT "" CACHE PATH "What scripts/debian_root.sh made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MSPROBE_ROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${MSPROBE_ROOT}")
set(CMAKE_SYSROOT "${MSPROBE_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${MSPROBE_ROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
    "${MSPROBE_ROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${MSPROBE_ROOT}/usr/share/pkgconfig")
