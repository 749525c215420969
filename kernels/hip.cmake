# libgpusnap-hip.so: the gpu_*.c files for HIP, and the kernels. A code object for each architecture:
# hipcc knows the older ones, and a clang of 20 or later those of the MI300 and MI350, for which
# Debian has no device library (none is used). CMake's HIP language wants a whole ROCm.
find_program(GPUSNAP_HIP_CLANG NAMES clang-22 clang-21 clang-20)
find_program(GPUSNAP_HIP_LLD NAMES ld.lld-22 ld.lld-21 ld.lld-20) # which that clang calls
find_program(GPUSNAP_HIP_BUNDLER clang-offload-bundler
	PATHS /opt/rocm/llvm/bin /usr/lib/llvm-15/bin /usr/lib/llvm-22/bin REQUIRED)
set(hip_flags -x hip -std=c++17 -O3 -ffp-contract=off -Wall -DGSN_VENDOR_HIP
	-I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/formats/include
	-I${PROJECT_SOURCE_DIR}/kernels/include)
set(hip_source ${CMAKE_CURRENT_SOURCE_DIR}/gpu_kernels.cu)

# hip_compiler(ARCHITECTURE RESULT): the command that compiles for it, or nothing.
function(hip_compiler architecture result)
	set(${result} "" PARENT_SCOPE)
	if(architecture MATCHES "^gfx9(06|08|0a)$")
		set(${result} ${GPUSNAP_HIPCC} PARENT_SCOPE)
	elseif(GPUSNAP_HIP_CLANG AND GPUSNAP_HIP_LLD)
		set(${result} ${GPUSNAP_HIP_CLANG} -nogpulib PARENT_SCOPE)
	else()
		message(STATUS "HIP module: no code for ${architecture}, which needs clang-22 and lld-22")
	endif()
endfunction()

set(hip_objects "")
set(hip_targets host-x86_64-unknown-linux)
set(hip_inputs -input=/dev/null)
foreach(architecture IN LISTS GPUSNAP_HIP_ARCHITECTURES)
	hip_compiler(${architecture} compiler)
	if(NOT compiler)
		continue()
	endif()
	set(object ${CMAKE_CURRENT_BINARY_DIR}/gpu_kernels.${architecture}.co)
	add_custom_command(OUTPUT ${object}
		COMMAND ${CMAKE_COMMAND} -E env --unset=HIP_PLATFORM ${compiler} ${hip_flags}
			--offload-arch=${architecture} --cuda-device-only --no-gpu-bundle-output
			-Rpass-analysis=kernel-resource-usage
			-Xclang -dependency-file -Xclang ${object}.d -Xclang -MT -Xclang ${object}
			-c ${hip_source} -o ${object} 2> ${object}.txt
			|| (cat ${object}.txt >&2 && false)
		DEPENDS gpu_kernels.cu DEPFILE ${object}.d
		COMMENT "Building HIP code object kernels/gpu_kernels.cu for ${architecture}")
	list(APPEND hip_objects ${object})
	list(APPEND hip_targets hipv4-amdgcn-amd-amdhsa--${architecture})
	list(APPEND hip_inputs -input=${object})
endforeach()

list(JOIN hip_targets "," hip_targets)
set(hip_bundle ${CMAKE_CURRENT_BINARY_DIR}/gpu_kernels.hipfb)
add_custom_command(OUTPUT ${hip_bundle}
	COMMAND ${GPUSNAP_HIP_BUNDLER} -type=o -bundle-align=4096 -targets=${hip_targets}
		${hip_inputs} -output=${hip_bundle}
	DEPENDS ${hip_objects} VERBATIM)
set(hip_host ${CMAKE_CURRENT_BINARY_DIR}/gpu_kernels.hip.o)
add_custom_command(OUTPUT ${hip_host}
	COMMAND ${GPUSNAP_HIPCC} ${hip_flags} --cuda-host-only
		--offload-arch=gfx90a -fPIC -fvisibility=hidden
		-Xclang -fcuda-include-gpubinary -Xclang ${hip_bundle}
		-MD -MF ${hip_host}.d -MT ${hip_host} -c ${hip_source} -o ${hip_host}
	DEPENDS gpu_kernels.cu ${hip_bundle} DEPFILE ${hip_host}.d
	COMMENT "Building HIP object kernels/gpu_kernels.cu" VERBATIM)

add_library(gpusnap_hip MODULE ${GPUSNAP_GPU_SOURCES} hip_entries.c ${hip_host})
set_target_properties(gpusnap_hip PROPERTIES
	OUTPUT_NAME gpusnap-hip LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_compile_definitions(gpusnap_hip PRIVATE GSN_VENDOR_HIP __HIP_PLATFORM_AMD__)
target_include_directories(gpusnap_hip PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(gpusnap_hip SYSTEM PRIVATE ${GPUSNAP_HIP_INCLUDE})
target_link_libraries(gpusnap_hip PRIVATE gpusnap_flags gpusnap_static
	-Wl,-Bstatic -lstdc++ -Wl,-Bdynamic)
target_link_options(gpusnap_hip PRIVATE -Wl,--as-needed -Wl,--no-undefined
	-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/device_module.map)
set_property(TARGET gpusnap_hip APPEND PROPERTY
	LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device_module.map)
